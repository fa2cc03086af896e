# To be sourced by scripts with set -e: installs Debian's packages where they are missing. Nothing is
# configured and no service is started.
#
#	. scripts/packages.sh
#	need PACKAGE PATTERN...
#	install_needed WHAT COMMAND
# shellcheck shell=bash

needed=()

# need PACKAGE PATTERN...
# Notes a package as missing, unless one of the patterns is a file that exists or
# a command in the PATH. Without a pattern it always is missing.
need() {
	local package=$1
	shift
	local pattern
	for pattern in "$@"; do
		if compgen -G "$pattern" >/dev/null || command -v "$pattern" >/dev/null; then
			return
		fi
	done
	needed+=("$package")
}

# install_needed WHAT COMMAND
# Installs what is missing. WHAT begins its messages, and COMMAND is what somebody
# who is not root is told to run as root.
install_needed() {
	local what=$1 command=$2
	if [ ${#needed[@]} -eq 0 ]; then
		echo "$what: all installed"
		return
	fi
	echo "$what: installing ${needed[*]}"
	if ! command -v apt-get >/dev/null; then
		echo "$what: there is no apt-get here; install by hand: ${needed[*]}" >&2
		return 1
	fi
	if [ "$(id -u)" -ne 0 ]; then
		echo "$what: only root can install packages; run: sudo $command" >&2
		return 1
	fi
	# A process of its own, whose traps are nobody else's.
	(
		forbid_services
		install_packages "$what" "${needed[@]}"
	)
	needed=()
	echo "$what: done"
}

# forbid_services keeps Debian's packages from starting their services until the
# process ends: this file is how an administrator says no. Whatever was there
# before comes back, also after an interrupted run.
forbid_services() {
	policy=/usr/sbin/policy-rc.d
	saved=$policy.before-dlock
	restore_policy
	trap restore_policy EXIT
	trap 'exit 130' INT TERM HUP
	if [ -e "$policy" ]; then
		mv "$policy" "$saved"
	fi
	printf '#!/bin/sh\n# dlock: no services while packages for tests are installed\nexit 101\n' >"$policy"
	chmod 755 "$policy"
}

restore_policy() {
	if [ -e "$saved" ]; then
		mv -f "$saved" "$policy"
	elif grep -qs 'dlock: no services' "$policy"; then
		rm -f "$policy"
	fi
}

# install_packages WHAT PACKAGE...
install_packages() {
	local what=$1
	shift
	export DEBIAN_FRONTEND=noninteractive
	local apt=(apt-get -q -y -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3)
	local install=("${apt[@]}" install --no-install-recommends "$@")
	local log
	log=$(mktemp)
	# The lists may be missing or old: they are fetched only if it does not work without.
	if ! "${install[@]}" >"$log" 2>&1; then
		if ! { "${apt[@]}" update && "${install[@]}"; } >"$log" 2>&1; then
			cat "$log" >&2
			echo "$what: the installation failed; the log is above" >&2
			rm -f "$log"
			return 1
		fi
	fi
	rm -f "$log"
}
