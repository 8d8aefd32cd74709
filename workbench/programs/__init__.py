"""``workbench run``: programs of others, as they are, on the simulated devices; their launches checked and shown."""
