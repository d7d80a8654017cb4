#!/bin/sh
set -e
# $1 is "remove" with dpkg and the number of remaining versions with rpm. An upgrade
# does not stop the service.
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now generic-dp.service generic-dp-cdi.service || true
	fi
	# Links and specs outlive the process but are useless without it.
	/usr/bin/generic-dp clean || true
	;;
esac
