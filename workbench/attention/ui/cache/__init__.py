"""Pictures of caches: blocks and their owners, rows and slots, where memory is wasted."""
