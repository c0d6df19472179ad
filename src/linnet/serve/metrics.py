"""What Prometheus is told: the queue, the rows, tokens, and how long things take."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from linnet.serve.engine import Engine
from linnet.serve.request import Completion

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Figures of one engine, in a registry of their own."""

    def __init__(self, engine: Engine):
        self.registry = CollectorRegistry()
        self.registry.register(_EngineFigures(engine))  # type: ignore[arg-type]
        self.requests = Counter(
            "linnet_requests", "Requests by how they ended.", ["finish"], registry=self.registry
        )
        self.refused = Counter(
            "linnet_refused", "Requests refused, by status.", ["status"], registry=self.registry
        )
        self.first_token = self._histogram("first_token", "From submission to the first token.")
        self.per_token = self._histogram("token", "From one token to the next, on average.")
        self.whole = self._histogram("request", "From submission to the end.")

    def _histogram(self, name: str, described: str) -> Histogram:
        return Histogram(
            f"linnet_{name}_seconds", described, buckets=_SECONDS, registry=self.registry
        )

    def finished(self, completion: Completion) -> None:
        """Notes a request that is done."""
        for choice in completion.choices:
            self.requests.labels(choice.finish).inc()
        ended = completion.finished or completion.submitted
        self.whole.observe(ended - completion.submitted)
        if completion.first_token is not None:
            self.first_token.observe(completion.first_token - completion.submitted)
            longest = max(len(choice.tokens) for choice in completion.choices)
            if longest > 1:
                self.per_token.observe((ended - completion.first_token) / (longest - 1))


class _EngineFigures:
    """Reads an engine's own counts when asked."""

    def __init__(self, engine: Engine):
        self.engine = engine

    def collect(self) -> Iterator[Metric]:
        engine, counts = self.engine, self.engine.counts
        gauges = {
            "linnet_queue": ("Answers that wait for a row.", engine.waiting),
            "linnet_rows_used": ("Rows of the cache in use.", engine.rows.used),
            "linnet_rows": ("Rows of the cache.", len(engine.rows.rows)),
        }
        for name, (described, value) in gauges.items():
            yield GaugeMetricFamily(name, described, value=value)
        counters = {
            "linnet_prompt_tokens": ("Prompt tokens computed.", counts.prompt_tokens),
            "linnet_cached_tokens": ("Prompt tokens found in the cache.", counts.cached_tokens),
            "linnet_new_tokens": ("Tokens generated.", counts.new_tokens),
            "linnet_prefill_passes": ("Passes over prompts.", counts.prefill_passes),
            "linnet_decode_steps": ("Decode steps.", counts.decode_steps),
        }
        for name, (described, value) in counters.items():
            yield CounterMetricFamily(name, described, value=value)
