collect_ignore = ["repository", "typical"]  # which test_plugin.py and figures.py run
