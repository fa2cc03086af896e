package zklock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/inwords"
	"github.com/go-zookeeper/zk"
)

// Diagnose implements driver.Diagnoser.
func (s *Store) Diagnose(ctx context.Context) ([]driver.Finding, error) {
	return call(ctx, s, "diagnosing", func(context.Context) ([]driver.Finding, error) {
		rights, err := s.checkRights()
		return []driver.Finding{rights, s.checkTimeout(), s.checkEnsemble()}, err
	})
}

// checkRights does what a lock needs, and undoes it.
func (s *Store) checkRights() (driver.Finding, error) {
	f := driver.Finding{Check: "rights", Level: driver.LevelOK, Message: "Containers and nodes can be created and removed below " + s.rootPath() + "."}
	container := s.root + "/dlock-doctor-" + newID()
	err := s.createContainer(container)
	if err == nil {
		var node string
		if node, err = s.conn.Create(container+"/"+fairNodePrefix(newID()), nil, zk.FlagEphemeralSequential, s.opts.ACL); err == nil {
			err = s.conn.Delete(node, anyVersion)
		}
		err = errors.Join(err, s.conn.Delete(container, anyVersion))
	}
	if err == nil {
		return f, nil
	}
	if err = explain("trying what a lock needs below "+s.rootPath(), err); errors.Is(err, driver.ErrUnreachable) {
		return f, err
	}
	f.Level, f.Message = driver.LevelProblem, fmt.Sprintf("Locks cannot be taken: %v.", err)
	return f, nil
}

func (s *Store) checkTimeout() driver.Finding {
	f := driver.Finding{Check: "session_timeout", Level: driver.LevelOK}
	asked, granted := s.opts.Timeout, s.sessionTimeout()
	f.Message = fmt.Sprintf("The session's timeout is %s: a lock is promised for %s at a time, and is free after the timeout when its process dies.",
		inwords.Duration(granted), inwords.Duration(s.promise(driver.MaxTTL, 0)))
	if asked != granted {
		f.Level = driver.LevelWarning
		f.Message = fmt.Sprintf("The server changed the session's timeout from %s to %s. ", inwords.Duration(asked), inwords.Duration(granted)) + f.Message
	}
	return f
}

// checkEnsemble asks the connected server whether it belongs to an ensemble.
func (s *Store) checkEnsemble() driver.Finding {
	f := driver.Finding{Check: "ensemble", Level: driver.LevelWarning}
	if s.opts.TLS != nil {
		f.Message = "Whether the server belongs to an ensemble cannot be asked over TLS."
		return f
	}
	version, mode := serverMode(s.conn.Server())
	switch mode {
	case "":
		f.Message = "Whether the server belongs to an ensemble is unknown: it does not answer srvr."
	case "standalone":
		f.Breaks = driver.PromiseFailover
		f.Message = "ZooKeeper " + version + " runs on one server: locks survive its restart, but not the loss of its disk. Three servers survive the loss of one."
	default:
		f.Level = driver.LevelOK
		f.Message = "ZooKeeper " + version + ", an ensemble: locks survive while a majority of its servers works."
	}
	return f
}

// serverMode asks a server for its version and its mode: standalone, leader or follower.
// The mode is empty if the server does not answer.
func serverMode(addr string) (version, mode string) {
	const limit = 2 * time.Second
	conn, err := net.DialTimeout("tcp", addr, limit)
	if err != nil {
		return "", ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(limit)) // if one of these fails, the answer is empty
	_, _ = io.WriteString(conn, "srvr")
	answer, _ := io.ReadAll(conn)
	for line := range strings.Lines(string(answer)) {
		field, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch field {
		case "Zookeeper version":
			version, _, _ = strings.Cut(value, "-")
		case "Mode":
			mode = value
		}
	}
	return version, mode
}
