"""What this distribution adds to Fencepost."""

from pathlib import Path

from fencepost.plugin import Plugin

_HERE = Path(__file__).parent

PLUGIN = Plugin(
    name="judge",
    about="an online judge with a sandbox of its own",
    schemas={"judge": _HERE},
    requires=("accounts", "webhooks"),
    settings=("fencepost_judge._settings:JudgeSettings", "fencepost_judge._direct_path:DirectPathSettings"),
    commands={"judge": "fencepost_judge.commands._judge:app"},
    http_service="fencepost_judge._http_service:make_service",
    doctor="fencepost_judge.sandbox._doctor_probe:probe_judge",
    announce="fencepost_judge.commands._accounts:announce",
    demo="fencepost_judge._demo:PART",
    names="fencepost_judge._compatible_names:NAMES",
)
