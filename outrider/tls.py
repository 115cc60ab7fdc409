"""TLS contexts of our own listeners and clients: 1.2 at least, certificates always checked."""

import ssl
from pathlib import Path

from outrider.errors import InputError


def server_context(cert_file: str, key_file: str) -> ssl.SSLContext:
    """What a listener shows.

    Args:
        cert_file, key_file: PEM files; certificates between ours and the authority's stand behind ours.

    Raises:
        InputError: a file cannot be read or does not fit, or everybody can read the key.
    """
    try:
        mode = Path(key_file).stat().st_mode
        if mode & 0o007:
            raise InputError(f"is open to everybody (mode {mode & 0o777:03o}): chmod 600", file=key_file)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # A key under a pass phrase would ask for it at the terminal, and wait.
        context.load_cert_chain(cert_file, key_file, password=lambda: "")
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"cannot be used as certificate with the key {key_file}: {_words(error)}", file=cert_file) from None
    return context


def client_context(ca_file: str) -> ssl.SSLContext:
    """Whom a client trusts: the authorities in `ca_file` alone; empty: the system's.

    Raises:
        InputError: the file holds no certificate.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"holds no certificate: {_words(error)}", file=ca_file) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _words(error: OSError) -> str:
    if "PEM lib" in str(error):
        return "the key is no PEM file that can be read without a pass phrase"
    return str(getattr(error, "reason", None) or error.strerror or error)
