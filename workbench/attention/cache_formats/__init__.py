"""How keys and values lie in memory: the layouts of a KV cache, and the bytes of quantized elements."""
