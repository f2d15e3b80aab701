"""The Celery parent: message loop, acks and events. Never imports torch."""
