"""``python -m workbench.run script.py``: the same as ``workbench run``."""

from workbench.cli import main

if __name__ == "__main__":
    import sys

    main(["run", *sys.argv[1:]], prog_name="workbench")
