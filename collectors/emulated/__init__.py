"""A node without hardware: a fake NVML library, trees like /sys and /dev/kmsg, an imitation of dcgm-exporter."""
