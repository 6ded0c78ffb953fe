"""Models in repositories of the Hugging Face hub, or in folders of the same form.

`push_to_hub` uploads a run with a model card, `pull_from_hub` downloads it as the folder of a run, and `load_from_hub` returns
the path of its model file for `load`.
"""

from __future__ import annotations

from sb_dqn.hub.transfer import Pulled, Pushed, load_from_hub, pull_from_hub, push_to_hub

__all__ = ["Pulled", "Pushed", "load_from_hub", "pull_from_hub", "push_to_hub"]
