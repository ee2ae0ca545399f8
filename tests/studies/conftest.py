import sys
from pathlib import Path

# Specs in these tests point at `toy:make_run`, as a user's specs point at a module of theirs.
sys.path.append(str(Path(__file__).parent))
