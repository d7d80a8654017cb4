#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
case "$1" in
purge)
	rm -rf /var/lib/generic-dp
	rmdir --ignore-fail-on-non-empty /etc/generic-dp 2>/dev/null || true
	;;
esac
