package subjects

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync"
	"time"
)

// monitorLimit is the number of commands that are observed as a sample. Observing
// all of them would slow the server down.
const monitorLimit = 5000

// monitored matches a line of MONITOR: the time, the connection or "lua", and the
// command.
var monitored = regexp.MustCompile(`^\+\S+ \[\d+ (\S+)\] "([^"]+)"`)

// monitor reads the output of MONITOR up to the limit, and then disconnects.
type monitor struct {
	conn       net.Conn
	finished   chan struct{}
	asked, all map[string]float64 // by name
	err        error
}

func (s *redisServers) Listen(ctx context.Context) (stop func() (map[string]float64, error), err error) {
	var monitors []*monitor
	end := func() (map[string]float64, error) {
		asked, all := make(map[string]float64), make(map[string]float64)
		var errs []error
		for _, m := range monitors {
			errs = append(errs, m.end())
			for name, n := range m.all {
				asked[name], all[name] = asked[name]+m.asked[name], all[name]+n
			}
		}
		for name, n := range all {
			asked[name] /= n
		}
		return asked, errors.Join(errs...)
	}
	for _, server := range s.servers {
		m, err := startMonitor(ctx, server.Addr())
		if err != nil {
			_, endErr := end()
			return nil, errors.Join(err, endErr)
		}
		monitors = append(monitors, m)
	}
	return sync.OnceValues(end), nil
}

func startMonitor(ctx context.Context, addr string) (*monitor, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	m := &monitor{conn: conn, finished: make(chan struct{}), asked: make(map[string]float64), all: make(map[string]float64)}
	lines := bufio.NewReader(conn)
	if err := m.start(lines); err != nil {
		return nil, errors.Join(fmt.Errorf("MONITOR: %w", err), conn.Close())
	}
	go func() {
		defer close(m.finished)
		defer conn.Close()
		m.read(lines)
	}()
	return m, nil
}

func (m *monitor) start(lines *bufio.Reader) error {
	const patience = 10 * time.Second
	if err := m.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := m.conn.Write([]byte("MONITOR\r\n")); err != nil {
		return err
	}
	answer, err := lines.ReadString('\n')
	if err == nil && answer != "+OK\r\n" {
		err = errors.New(answer)
	}
	return errors.Join(err, m.conn.SetDeadline(time.Time{}))
}

func (m *monitor) read(lines *bufio.Reader) {
	for range monitorLimit {
		line, err := lines.ReadString('\n')
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				m.err = fmt.Errorf("MONITOR: %w", err)
			}
			return
		}
		m.count(line)
	}
}

func (m *monitor) count(line string) {
	found := monitored.FindStringSubmatch(line)
	if found == nil {
		return
	}
	name := strings.ToLower(found[2])
	m.all[name]++
	if found[1] != "lua" {
		m.asked[name]++
	}
}

func (m *monitor) end() error {
	m.conn.Close()
	<-m.finished
	return m.err
}
