"""Prometheus metrics of the server, in their own registry."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector

SECONDS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20, 30, 60)
BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)


class Metrics:
    """Counters and histograms of one server."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self.requests = Counter("tts_requests", "Speech requests by result", ["voice", "result"], registry=registry)
        self.characters = Counter("tts_characters", "Characters of accepted texts", ["voice"], registry=registry)
        self.audio = Counter(
            "tts_audio_seconds", "Seconds of computed audio, before a change of speed", ["voice"], registry=registry
        )
        self.errors = Counter("tts_errors", "Answers with an error, by HTTP status", ["status"], registry=registry)
        self.queue = Gauge("tts_queue_length", "Accepted requests that are not finished", registry=registry)
        self.active = Gauge("tts_active_requests", "Requests whose audio is being computed", registry=registry)
        self.ready = Gauge("tts_ready", "1 while the server accepts requests", registry=registry)
        self.batch = Histogram(
            "tts_batch_size", "Pieces of text whose mels were computed as one batch", buckets=BATCHES, registry=registry
        )
        first = "Seconds from a request to the first part of its audio"
        self.first_byte = Histogram("tts_first_byte_seconds", first, buckets=SECONDS, registry=registry)
        whole = "Seconds from a request to the last part of its audio"
        self.duration = Histogram("tts_request_seconds", whole, buckets=SECONDS, registry=registry)
