"""The kernel's table of connections, as text and for real."""

import socket

from drills.job.endpoints import own_endpoints, parse

#: Two lines as Linux writes them, and one of another process.
TABLE = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0300007F:9C40 0200007F:0016 01 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 20 4 30 10 -1
   1: 0100007F:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 100 0 0 10 0
   2: 0100007F:9C41 0200007F:0016 01 00000000:00000000 00:00000000 00000000     0        0 4713 1 0 20 4 30 10 -1
"""
TABLE6 = """  sl  local_address                         remote_address                        st tx rx tr tm retr uid timeout inode
   0: 0000000000000000FFFF00000700000A:1F90 0000000000000000FFFF00000100000A:9C42 01 0:0 00:0 0 0 0 9 1 0 20 4 30 10 -1
   1: B80D0120000000000000000001000000:1F90 B80D0120000000000000000002000000:9C42 01 0:0 00:0 0 0 0 9 1 0 20 4 30 10 -1
"""


def test_only_established_connections_of_this_process_count():
    assert parse(TABLE, {"4711", "4712"}) == ["127.0.0.3:40000"]


def test_mapped_and_true_version_six_addresses_are_read():
    assert parse(TABLE6, {"9"}) == ["10.0.0.7:8080", "2001:db8::1:8080"]


def test_a_real_connection_is_found():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as mine:
        address, port = mine.getsockname()
        assert f"{address}:{port}" in own_endpoints()
