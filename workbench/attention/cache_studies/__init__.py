"""Studies of what a cache of keys and values does with its memory: `waste` and `sharing` under `traces` of requests
(with a `buddy` allocator for rows), the `replay` of a trace step by step, and `samples` to try a quantization on."""
