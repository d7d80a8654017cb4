#!/bin/sh
set -e
# Nothing runs before there is a configuration: enabling it is the admin's word.
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart generic-dp.service generic-dp-cdi.service
fi
