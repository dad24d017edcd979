"""`python -m fedprognos`."""

from fedprognos.cli import main

if __name__ == "__main__":
    main()
