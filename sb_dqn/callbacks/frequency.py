"""Event frequency in environment steps over all lanes."""

from __future__ import annotations

from sb_dqn.checks import check_int


class Every:
    """Detects when `num_timesteps` crosses a multiple of a frequency, at most once per tick.

    Args:
        frequency: environment steps over all lanes between two events, >= 1.
        name: name of the argument, for error messages.

    Raises:
        ConfigurationError: `frequency` is not a whole number >= 1.
    """

    def __init__(self, frequency: int, name: str = "frequency") -> None:
        self.frequency = check_int(name, frequency, 1)
        self._multiples = 0

    def begin(self, num_timesteps: int) -> None:
        """Starts counting at `num_timesteps`; earlier multiples are ignored."""
        self._multiples = num_timesteps // self.frequency

    def crossed(self, num_timesteps: int) -> bool:
        """Returns True if a multiple was crossed since the last call."""
        multiples = num_timesteps // self.frequency
        crossed = multiples > self._multiples
        self._multiples = multiples
        return crossed
