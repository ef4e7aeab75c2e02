"""The switches of the fake family, each with the stage that reads it.

A model config sets them in `adapter_options` (`loadtime`, `runtime`); a request may set all but the `load` ones.
"""

from __future__ import annotations

from typing import get_args

from sie_core.contracts import LoadFailure, Option

OPTIONS = (
    Option("journal", "load", str, description="A file that gets one line of JSON for every load, run and unload."),
    Option("record", "load", bool, description="Whether the process keeps in mind what ran; unset: yes."),
    Option("load_s", "load", float, description="Seconds a load takes.", minimum=0),
    Option("load_hold", "load", str, description="A file; a load waits while it exists, 60 s at most."),
    Option(
        "memory_bytes",
        "load",
        int,
        description="Bytes it takes; on the emulated accelerator they are only counted.",
        minimum=0,
    ),
    Option(
        "load_failure",
        "load",
        str,
        description="How a load fails, as a real one of that class does.",
        choices=get_args(LoadFailure),
    ),
    Option(
        "load_failure_times",
        "load",
        int,
        description="How many loads of the process fail; unset: every one.",
        minimum=1,
    ),
    Option("takes_lora", "load", bool, description="Whether requests may choose LoRA adapters; unset: no."),
    Option("lora_hold", "load", str, description="A file; loading a LoRA adapter waits while it exists, 60 s at most."),
    Option(
        "prepare_hold", "load", str, description="A file; preparing and tokenising wait while it exists, 60 s at most."
    ),
    Option("image_hold", "load", str, description="A file; preparing an image waits while it exists, 60 s at most."),
    Option("unit_bytes", "load", int, description="Bytes the payload of every unit takes until its run.", minimum=0),
    Option("run_hold", "load", str, description="A file; every run waits while it exists, 60 s at most."),
    Option("oom_above_cost", "load", int, description="A run of a larger cost is out of memory.", minimum=0),
    Option("oom_every", "load", int, description="Every n-th run is out of memory.", minimum=1),
    Option("run_bytes_per_cost", "load", int, description="Memory a run takes for each unit of its cost.", minimum=0),
    Option("exit_text", "load", str, description="The process ends at a run with a text that contains it."),
    Option(
        "leak_bytes",
        "load",
        int,
        description="Memory of the process that every run takes and never gives back.",
        minimum=0,
    ),
    Option(
        "audio_chunk",
        "load",
        int,
        description="Samples of audio that cost one unit; 1600 where it is not set.",
        minimum=1,
    ),
    Option("lowercase", "prepare", bool, description="Lower-case the text first.", operations=("encode", "score")),
    Option(
        "window",
        "prepare",
        int,
        description="Cut a text into units of so many words and merge their outputs.",
        minimum=1,
    ),
    Option("prepare_crash_text", "prepare", str, description="`prepare` raises where a text contains it."),
    Option("prepare_oom_text", "prepare", str, description="`prepare` is out of memory where a text contains it."),
    Option("salt", "run", str, description="Another model, as it were: changes every vector.", operations=("encode",)),
    Option("latency_ms", "run", float, description="Milliseconds every run takes.", minimum=0),
    Option(
        "latency_ms_per_cost",
        "run",
        float,
        description="Milliseconds a run takes for each unit of its cost.",
        minimum=0,
    ),
    Option("oom_text", "run", str, description="A run with a text that contains it is out of memory."),
    Option("crash_text", "run", str, description="`run` raises where a text contains it."),
    Option("lost_text", "run", str, description="A run with a text that contains it finds the device lost."),
    Option("nan_text", "run", str, description="A text that contains it gets NaN in every output."),
    Option("scale", "finish", float, description="Multiplies the dense vector.", operations=("encode",)),
    Option(
        "threshold",
        "finish",
        float,
        description="Entities of a lower score are left out.",
        choices=(),
        minimum=0,
        maximum=1,
        operations=("extract",),
    ),
    Option("finish_crash_text", "finish", str, description="`finish` raises where a text contains it."),
    Option("finish_oom_text", "finish", str, description="`finish` is out of memory where a text contains it."),
)
