collect_ignore = ["repository"]  # which test_plugin.py runs, in a copy
