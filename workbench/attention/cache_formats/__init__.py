"""Memory formats of keys and values: the layouts of a paged KV cache, and quantized elements with their scales."""
