package servers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// faketime is a library that makes programs see another time, from Debian's
// package "faketime".
const faketime = "/usr/lib/*/faketime/libfaketime.so.1"

// WithClock returns a kind of server whose clock can be moved while it runs, with
// SetClock. Only the wall clock moves; monotonic clocks do not. Memcached uses
// only a monotonic clock, so its time does not move.
func WithClock(kind *Kind) *Kind {
	moved := *kind
	// The signal handler of Redis reads the clock. If it interrupts faketime, it waits for ever.
	moved.StopByKill = kind.Name == Redis.Name
	moved.Init = func(in Instance) ([]Command, error) {
		libraries, err := filepath.Glob(faketime)
		if err != nil || len(libraries) == 0 {
			return nil, fmt.Errorf("faketime is not installed (no %s): run `make servers` as root, which installs it from Debian's packages (%w)",
				faketime, errors.Join(err, fs.ErrNotExist))
		}
		if _, err := os.Stat(clockFile(in)); errors.Is(err, fs.ErrNotExist) { // a moved clock survives RestartEmpty
			if err := setClock(in, 0); err != nil {
				return nil, err
			}
		}
		if kind.Init == nil {
			return nil, nil
		}
		return kind.Init(in)
	}
	moved.Env = func(in Instance) []string {
		env := []string{
			"FAKETIME_TIMESTAMP_FILE=" + clockFile(in),
			"FAKETIME_NO_CACHE=1",
			"FAKETIME_DONT_FAKE_MONOTONIC=1",
		}
		if libraries, err := filepath.Glob(faketime); err == nil && len(libraries) > 0 {
			// libc must come before the server's own allocator, which reads the
			// clock while faketime allocates memory to answer.
			env = append(env, "LD_PRELOAD="+libraries[0]+" libc.so.6")
		}
		if kind.Env != nil {
			env = append(env, kind.Env(in)...)
		}
		return env
	}
	// With several threads faketime sometimes returns the real time: in one of
	// 500 readings on MariaDB.
	moved.Args = func(in Instance) []string { return append(kind.Args(in), kind.oneThread...) }
	moved.Started = func(pid int) error {
		err := unlinkShared(pid)
		if kind.Started != nil {
			err = errors.Join(err, kind.Started(pid))
		}
		return err
	}
	return &moved
}

// SetClock moves the wall clock of the server by an offset from the real time,
// also after restarts. The server must be of a kind made by WithClock.
func (s *Server) SetClock(offset time.Duration) error {
	if _, err := os.Stat(clockFile(s.in)); err != nil {
		return fmt.Errorf("%s has no clock that can be moved: %w", s.kind.Name, err)
	}
	return setClock(s.in, offset)
}

// SlowClock makes the server see the given second for more than a minute, and
// again after a restart. With a clock that stands still MariaDB would not answer.
// The server must be of a kind made by WithClock.
func (s *Server) SlowClock(second time.Time) error {
	if _, err := os.Stat(clockFile(s.in)); err != nil {
		return fmt.Errorf("%s has no clock that can be slowed down: %w", s.kind.Name, err)
	}
	return writeClock(s.in, second.Local().Format("@"+time.DateTime)+" x0.01")
}

func clockFile(in Instance) string { return filepath.Join(in.Dir, "clock") }

func setClock(in Instance, offset time.Duration) error {
	return writeClock(in, fmt.Sprintf("%+.6f", offset.Seconds()))
}

// writeClock replaces the file atomically: the server reads it all the time.
func writeClock(in Instance, text string) error {
	next := clockFile(in) + ".next"
	if err := writeOwned(next, text+"\n"); err != nil {
		return err
	}
	return os.Rename(next, clockFile(in))
}

// unlinkShared removes the names of the shared memory of faketime. Children
// inherit it without a name, and a killed process would leave the names behind.
func unlinkShared(pid int) error {
	var err error
	for _, name := range []string{"/dev/shm/faketime_shm_%d", "/dev/shm/sem.faketime_sem_%d"} {
		if removeErr := os.Remove(fmt.Sprintf(name, pid)); !errors.Is(removeErr, fs.ErrNotExist) {
			err = errors.Join(err, removeErr)
		}
	}
	return err
}
