"""The node agent: heartbeats, memory of local ranks, the way of signals to the witnesses and of orders back."""
