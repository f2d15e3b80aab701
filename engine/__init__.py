"""Models on a device: scheduling, batching, residency. No HTTP, no SQL, no Celery."""
