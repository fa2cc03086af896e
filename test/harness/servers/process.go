package servers

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"strconv"
	"sync"
	"syscall"
)

// process is a server's main process while it runs.
type process struct {
	pid  int
	done chan struct{} // closed when it has ended
	err  error         // how it ended; to be read after done
}

// launch starts a program in dir with its output appended to the file log, and
// env added to its environment. The program is killed when this process ends.
func launch(command Command, env []string, dir, log string) (*process, error) {
	output, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer output.Close() // the program has its own copy
	cmd, err := prepare(command, dir)
	if err != nil {
		return nil, err
	}
	cmd.Env = append(cmd.Env, env...)
	cmd.Stdout, cmd.Stderr = output, output
	if err := startFromLastingThread(cmd); err != nil {
		return nil, err
	}
	p := &process{pid: cmd.Process.Pid, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
	}()
	return p, nil
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// prepare makes the command run in dir, as an unprivileged user if we are root.
func prepare(command Command, dir string) (*exec.Cmd, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin", "HOME=" + dir, "LC_ALL=C", "TMPDIR=" + dir}
	who, err := credential()
	if err != nil {
		return nil, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:    true, // Ctrl-C is for the tests, which then end their servers
		Pdeathsig:  syscall.SIGKILL,
		Credential: who,
	}
	return cmd, nil
}

// unprivileged is who servers run as when the tests run as root, which most of
// them refuse. Every Linux system has this user, unlike those of the packages.
const unprivileged = "nobody"

// credential is nil where we are not root and servers can run as we do.
var credential = sync.OnceValues(func() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup(unprivileged)
	if err != nil {
		return nil, fmt.Errorf("servers do not run as root, and there is no other user for them: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
})

// starts hands commands to the lasting thread.
var starts = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread() // and never unlock
		for do := range work {
			do()
		}
	}()
	return work
})

// startFromLastingThread starts cmd from a thread that lives as long as this
// process: Linux sends the parent-death signal when the thread that forked
// ends, and Go ends threads when it likes.
func startFromLastingThread(cmd *exec.Cmd) error {
	result := make(chan error)
	starts() <- func() { result <- cmd.Start() }
	return <-result
}
