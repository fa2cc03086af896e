package supervise

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	lastSignal  = syscall.Signal(64)
	uptimeClock = unix.CLOCK_BOOTTIME // counts the time in which the machine is suspended
)

// childAttributes put a process into a group of its own and let it die with dlock, or with the thread that started it.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// executable returns the path of this program, which is valid even if the file was replaced.
func executable() (string, error) { return "/proc/self/exe", nil }

// shellAbove reports whether a shell would continue dlock after a stop: its first ancestor outside of its
// process group is in its session, and does not let SIGTSTP stop itself. An orphaned group has no
// such ancestor, and neither a supervisor nor timeout(1) counts as a shell.
func shellAbove() bool {
	own, err := unix.Getsid(0)
	for pid := os.Getppid(); err == nil && pid > 0; { // 0: in another container
		if session, err := unix.Getsid(pid); err != nil || session != own {
			return false
		}
		group, err := unix.Getpgid(pid)
		if err != nil {
			return false
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil { // hidden by the mount option hidepid
			return true
		}
		if group != unix.Getpgrp() {
			handled := statusField(status, "SigIgn", 16) | statusField(status, "SigCgt", 16)
			return handled&(1<<(syscall.SIGTSTP-1)) != 0
		}
		pid = int(statusField(status, "PPid", 10))
	}
	return false
}

// statusField returns a number of /proc/PID/status.
func statusField(status []byte, name string, base int) uint64 {
	_, after, _ := strings.Cut(string(status), "\n"+name+":")
	line, _, _ := strings.Cut(after, "\n")
	number, _ := strconv.ParseUint(strings.TrimSpace(line), base, 64)
	return number
}

// stopGroup stops dlock's process group by the signal that stopped the command. So a dlock around this one
// learns what its command wants, and the kernel ignores the signal in an orphaned group. The caller calls
// restore when dlock goes on: package signal cannot restore the default action of a signal that was
// caught or ignored.
func stopGroup(by syscall.Signal) (restore func()) {
	const setSize = 8               // of the kernel's set of signals
	var standard, current [128]byte // at least a struct sigaction; zero is the default action
	set := func(action, old *[128]byte) syscall.Errno {
		_, _, err := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(by), uintptr(unsafe.Pointer(action)), uintptr(unsafe.Pointer(old)), setSize, 0, 0)
		return err
	}
	if set(&standard, &current) != 0 { // mips has larger sets
		_ = syscall.Kill(0, syscall.SIGSTOP)
		return func() {}
	}
	_ = syscall.Kill(0, by)
	return func() { set(&current, nil) }
}
