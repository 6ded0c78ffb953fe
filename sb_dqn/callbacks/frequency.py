"""How often something happens, counted in environment steps over all lanes."""

from __future__ import annotations

from sb_dqn.checks import check_int


class Every:
    """Says when a multiple of a frequency is crossed, at most once per tick.

    Args:
        frequency: environment steps over all lanes; at least 1.
        name: the argument that the frequency was given as, for the message.

    Raises:
        ConfigurationError: the frequency is not a whole number of at least 1.
    """

    def __init__(self, frequency: int, name: str = "frequency") -> None:
        self.frequency = check_int(name, frequency, 1)
        self._multiples = 0

    def begin(self, num_timesteps: int) -> None:
        """Start counting here: the multiples up to `num_timesteps` do not fire any more."""
        self._multiples = num_timesteps // self.frequency

    def crossed(self, num_timesteps: int) -> bool:
        """Whether a multiple was crossed since the last question."""
        multiples = num_timesteps // self.frequency
        fires = multiples > self._multiples
        self._multiples = multiples
        return fires
