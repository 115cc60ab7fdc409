"""The agent's log: one JSON object a line on standard error, where the init system or the launcher keeps it."""

import logging
import sys

import structlog


def configure() -> None:
    """Sets structlog up: level INFO, JSON, standard error."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
