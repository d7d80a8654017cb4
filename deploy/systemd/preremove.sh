#!/bin/sh
set -e
# dpkg says "remove", rpm how many versions stay: on an upgrade it goes on.
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now generic-dp.service generic-dp-cdi.service || true
	fi
	# Links and specs outlive the process; without the program they lead nowhere.
	/usr/bin/generic-dp clean || true
	;;
esac
