package servers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/dlock-go/dlock/test/harness/servers/internal/process"
)

// createFolder creates the server's folder together with its guard.
func (s *Server) createFolder(binary string) error {
	dir, err := os.MkdirTemp("", "dlock-"+s.kind.Name+"-")
	if err != nil {
		return err
	}
	// members recognizes processes by the real path of their working directory.
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		dir = resolved
	}
	s.in = Instance{Binary: binary, Dir: dir, Data: filepath.Join(dir, "data"), Host: "127.0.0.1"}
	if s.guard, err = process.StartGuard(dir); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	if err = own(dir, 0o755); err == nil {
		err = s.emptyData()
	}
	if err != nil {
		return errors.Join(err, s.Stop())
	}
	return nil
}

// emptyData resets the data folder to its state before the first start.
func (s *Server) emptyData() error {
	if err := os.RemoveAll(s.in.Data); err != nil {
		return err
	}
	if err := os.Mkdir(s.in.Data, 0o700); err != nil {
		return err
	}
	if err := own(s.in.Data, 0o700); err != nil {
		return err
	}
	if s.kind.Init == nil {
		return nil
	}
	commands, err := s.kind.Init(s.in)
	if err != nil {
		return err
	}
	for _, command := range commands {
		cmd, err := process.Prepare(command, s.in.Dir)
		if err != nil {
			return err
		}
		if output, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", filepath.Base(command[0]), err, output)
		}
	}
	return nil
}

// own gives a folder to the user that servers run as.
func own(dir string, mode os.FileMode) error {
	if err := os.Chmod(dir, mode); err != nil {
		return err
	}
	who, err := process.Credential()
	if err != nil || who == nil {
		return err
	}
	return os.Chown(dir, int(who.Uid), int(who.Gid))
}

// startOnFreePort starts the server for the first time. Another program may take
// the port between the search and the start, hence several attempts.
func (s *Server) startOnFreePort() error {
	const attempts = 4
	var err error
	for range attempts {
		if s.in.Port, err = freePort(s.in.Host); err != nil {
			return err
		}
		err = s.run()
		if err == nil || !s.portTaken() {
			return err
		}
	}
	return err
}

// given holds the ports that this process has given to servers. Without it, two
// servers that start at the same time could find the same port free, and a probe
// of the second would reach the first.
var given sync.Map

// freePort returns a port below the range that Linux gives to outgoing
// connections, so that the port of a stopped server is not taken before it comes
// back.
func freePort(host string) (int, error) {
	const first, count, attempts = 20000, 12000, 100
	var err error
	for range attempts {
		port := first + rand.IntN(count)
		if _, taken := given.LoadOrStore(port, true); taken {
			continue
		}
		var listener net.Listener
		if listener, err = net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port))); err == nil {
			return port, listener.Close()
		}
	}
	return 0, fmt.Errorf("no free port: %w", err)
}
