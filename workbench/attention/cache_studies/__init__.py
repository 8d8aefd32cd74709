"""Studies of the memory of a KV cache.

`waste` and `sharing` measure it under `traces` of requests (with a `buddy` allocator for rows), `group_waste` where
layers keep different things, `replay` serves a trace step by step, and `samples` draws keys and values to quantize.
"""
