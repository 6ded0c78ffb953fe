"""`sb-dqn doctor` names a planted fault of a run, from its model and from its log."""

from __future__ import annotations

from pathlib import Path

from tests.command import call
from tests.marks import SLOW


@SLOW
def test_doctor_names_faults_of_the_model_and_of_the_log(tmp_path: Path) -> None:
    small = ["--set", "gamma=0.5", "--set", "policy_kwargs={net_arch: [16]}", "--set", "learning_starts=50"]
    train = ["train", "dqn", "CartPole-v1", "--timesteps", 300, "--seed", 1, "--folder", tmp_path, "--no-progress"]
    assert call(*train, *small).exit_code == 0
    run = tmp_path / "dqn_CartPole-v1_1"
    (run / "progress.csv").write_text(
        "time/total_timesteps,diagnose/policy_churn\n200,0.1\n300,0.4\n", encoding="utf-8"
    )
    told = call("doctor", run, "--episodes", 2).output
    assert "300 env steps" in told
    assert "\n! horizon = 2, should be >= 5. Raise gamma" in told
    assert "\n! policy_churn = 0.4, should be <= 0.3" in told
    assert told.count("\n! ") == 2
    assert "mean return of the first tenth of the episodes" in told
