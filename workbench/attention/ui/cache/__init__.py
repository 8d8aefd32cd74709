"""Pictures of caches: blocks with their owners, rows with their slots, and wasted memory."""
