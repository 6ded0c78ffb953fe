"""Model files of Stable-Baselines3, and their settings, parameters and optimizers as those of this library."""

from sb_dqn.sb3_files.reader import SB3Zip, is_sb3_zip, read_sb3_zip
from sb_dqn.sb3_files.settings import algorithm_of

__all__ = ["SB3Zip", "algorithm_of", "is_sb3_zip", "read_sb3_zip"]
