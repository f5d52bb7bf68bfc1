"""`python -m kafila` is the `kafila` command."""

from kafila.cli import main

if __name__ == "__main__":
    main()
