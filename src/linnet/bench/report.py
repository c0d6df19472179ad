"""A run as a table for the terminal; every figure is computed from the result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from linnet.bench.methods import METHODS, REFERENCE

_COLUMNS = (
    ("first token", "ttft_ms", "{:,.0f} ms"),
    ("decode", "decode_tok_s", "{:.1f} tok/s"),
    ("load", "load_s", "{:.1f} s"),
    ("compile", "compile_s", "{:.0f} s"),
)


def print_run(result: Mapping[str, Any]) -> None:
    """Prints a run's rows, each beside the reference and the machine's limit."""
    from rich.console import Console
    from rich.table import Table

    rows: Mapping[str, Any] = result["rows"]
    bandwidth = result["machine"]["read_bandwidth"]
    base = rows.get(REFERENCE, {}).get("decode_tok_s")
    load = result["workload"]
    table = Table(
        title=f"{result['card']}: {load['prompt']} tokens in, {load['new']} out, {load['dtype']}, "
        f"medians of {load['runs']}",
        title_justify="left",
    )
    table.add_column("method")
    for title, _, _ in _COLUMNS:
        table.add_column(title, justify="right")
    for title in (f"÷ {REFERENCE}", "of bandwidth", "peak memory", "distance", "same tokens"):
        table.add_column(title, justify="right")
    for name, row in rows.items():
        if "decode_tok_s" not in row:
            table.add_row(METHODS[name].title, row.get("absent") or row.get("error", ""))
            continue
        speed = row["decode_tok_s"]
        weight_bytes = row.get("weight_bytes")
        table.add_row(
            METHODS[name].title,
            *(
                form.format(row[key]) if row.get(key) is not None else ""
                for _, key, form in _COLUMNS
            ),
            f"{speed / base:.2f}×" if base else "",
            f"{speed * weight_bytes / bandwidth:.0%}" if weight_bytes else "",
            f"{row['peak_mem'] / 2**20:,.0f} MiB",
            f"{row['distance']:.1e}" if "distance" in row else "",
            f"{row['same_tokens']} of {len(row['tokens'])}" if "same_tokens" in row else "",
        )
    console = Console(width=None if Console().is_terminal else 160)
    console.print(table)
    machine = result["machine"]
    console.print(
        f"{machine['processor']}, {machine['cores']} cores, reads {bandwidth / 1e9:.1f} GB/s"
    )
