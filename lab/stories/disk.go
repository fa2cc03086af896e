//go:build linux

package stories

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/dlock-go/dlock/lab/stage"
	"github.com/dlock-go/dlock/test/harness/servers"
)

var fullDisk = Story{
	Number: 27, Name: "disk-full", TTL: 2 * time.Second,
	Title: "The disk of the server is full",
	Tells: "A has the lock when the file system of the server runs full. Redis refuses all writes, PostgreSQL crashes and recovers, MariaDB can write only where its files have room, SQLite answers each write with an error, etcd refuses what exceeds its quota. " +
		"If A cannot renew, it must stop before its lock expires; B must not get in beside it. Then there is space again, and both get their turn. " +
		"Then A unlocks on the full disk: the release works, or fails with an error, and B gets the lock at the latest when there is space again.",
	On: []Place{
		{"redis", onSmallDisk(servers.Redis, 8, "--appendfsync", "everysec"), []Case{caught("redis/no-watchdog", stage.TwoHolders),
			peer("redis/redsync"), ours("redis")}},
		{"postgres", onSmallDisk(servers.Postgres, 96, "-c", "min_wal_size=2MB", "-c", "max_wal_size=2MB"), []Case{ours("postgres")}},
		{"sqlite", startSQLite, []Case{ours("sqlite")}},
		{"etcd", onQuota, []Case{ours("etcd")}},
		{"mysql", onSmallDisk(servers.MariaDB, 192, "--innodb-log-file-size=4M"), []Case{ours("mysql")}},
	},
	Play: func(s *stage.Stage) {
		s.Patience += 10 * time.Second
		d := s.Server.Any.(space)
		a, b := s.Process("A"), s.Process("B")
		turn(b)
		a.Lock()
		a.Read()
		d.exhaust(s)
		if b.TryFor(s.TTL / 2) {
			b.Deposit()
		}
		s.Wait(2 * s.TTL)
		d.free(s)
		granted := b.TryFor(s.TTL) // not if A could renew all the time
		if granted {
			b.Deposit()
			s.Wait(s.TTL / 4) // what both believe is recorded
		}
		a.Write()
		a.Unlock()
		if granted {
			b.Unlock()
		}
		if !retry(s, a) {
			return
		}
		a.Deposit()
		d.exhaust(s)
		a.Unlock()
		if b.TryFor(s.TTL) {
			b.Deposit()
			b.Unlock()
		}
		d.free(s)
		for _, p := range []*stage.Process{b, a} {
			if !retry(s, p) {
				return
			}
			p.Deposit()
			p.Unlock()
		}
	},
}

// space is what a server has to keep its data.
type space interface {
	exhaust(s *stage.Stage) // leaves none
	free(s *stage.Stage)    // makes some
}

// disk is a file system in memory, of a few megabytes.
type disk struct {
	folder string
	keeper *stage.Keeper

	refuse func(s *stage.Stage) error // makes the server notice that the disk is full; optional
	repair func() error               // what an operator does when there is space again; optional
}

func newDisk(megabytes int) (*disk, error) {
	folder, err := os.MkdirTemp("", fmt.Sprintf("dlock-lab-%d-disk-", os.Getpid()))
	if err != nil {
		return nil, err
	}
	if err := syscall.Mount("dlock-lab", folder, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=1777", megabytes)); err != nil {
		return nil, errors.Join(fmt.Errorf("a file system of its own needs root (CAP_SYS_ADMIN): mounting %s: %w", folder, err), os.Remove(folder))
	}
	keeper, err := stage.Keep(0, `umount --lazy "$1"; exec rmdir "$1"`, folder)
	if err != nil {
		return nil, errors.Join(err, syscall.Unmount(folder, 0), os.Remove(folder))
	}
	return &disk{folder: folder, keeper: keeper}, nil
}

// ballast is the file that fills the disk.
func (d *disk) ballast() string { return filepath.Join(d.folder, "ballast") }

// exhaust leaves no space on the disk.
func (d *disk) exhaust(s *stage.Stage) {
	file, err := os.Create(d.ballast())
	s.Must(err)
	block := make([]byte, 1<<16)
	for err == nil {
		if _, err = file.Write(block); err != nil && len(block) > 1 {
			block, err = block[:len(block)/2], nil
		}
	}
	s.Must(file.Close())
	if !errors.Is(err, syscall.ENOSPC) {
		s.Must(err)
	}
	s.Harm("the disk is full")
	if d.refuse != nil {
		s.Must(d.refuse(s))
	}
}

// free makes space again.
func (d *disk) free(s *stage.Stage) {
	s.Must(os.Remove(d.ballast()))
	if d.repair != nil {
		s.Must(d.repair())
	}
	s.Harm("there is space again")
}

// onSmallDisk starts a server with its data on a small disk.
func onSmallDisk(kind *servers.Kind, megabytes int, args ...string) func() (*stage.Server, error) {
	return func() (*stage.Server, error) {
		d, err := newDisk(megabytes)
		if err != nil {
			return nil, err
		}
		s, err := stage.Start(d.keeps(kind), "", args...)
		if err != nil {
			return nil, errors.Join(err, d.keeper.Close())
		}
		server, stop := s.Any.(*servers.Server), s.Stop
		s.Any = d
		s.Stop = func() error { return errors.Join(stop(), d.keeper.Close()) }
		switch kind {
		case servers.Redis:
			d.refuse = refuseRedis
			d.repair = func() error { return awaitRedis(server.Addr()) }
		case servers.Postgres:
			d.refuse = func(s *stage.Stage) error { return crashPostgres(s.Context(), server) }
			d.repair = func() error {
				// A shutdown during the recovery after the crash may never end.
				ctx, cancel := context.WithTimeout(context.Background(), failoverLimit)
				defer cancel()
				_ = server.WaitReady(ctx) // a server that cannot recover has ended
				return server.Restart()
			}
		case servers.MariaDB:
			d.refuse = func(s *stage.Stage) error { return fillMariaDB(s.Context(), server) }
		}
		return s, nil
	}
}

// keeps returns a kind of server whose data is on the disk.
func (d *disk) keeps(kind *servers.Kind) *servers.Kind {
	data := d.folder
	if kind.Init != nil {
		data = filepath.Join(d.folder, "data") // which belongs to the user of the server
	}
	k := elsewhere(kind, func(in *servers.Instance) { in.Data = data })
	if kind == servers.Postgres {
		init := k.Init
		k.Init = func(in servers.Instance) ([]servers.Command, error) {
			commands, err := init(in)
			if err == nil {
				commands[0] = append(commands[0], "--wal-segsize=1") // in megabytes
			}
			return commands, err
		}
	}
	return k
}

// refuseRedis writes until Redis has noticed that its log cannot grow.
func refuseRedis(s *stage.Stage) error {
	client := newRedis(s.Server.Addrs[0])
	defer client.Close()
	if err := fill(s.Context(), client); err != nil {
		return err
	}
	s.Harm("the server refuses all writes")
	return nil
}

// awaitRedis returns when Redis has noticed that its log can grow: it tries once a second.
func awaitRedis(addr string) error {
	client := newRedis(addr)
	defer client.Close()
	var err error
	for range 300 {
		if err = client.Del(context.Background(), fillKey).Err(); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("the disk has space, and Redis refuses to write: %w", err)
}

// crashPostgres writes to PostgreSQL's log until the server cannot.
func crashPostgres(ctx context.Context, server *servers.Server) error {
	for range 100 { // of about a megabyte each
		if _, err := server.SQL(ctx, "SELECT pg_logical_emit_message(true, 'fill', repeat('x', 1000000))"); err != nil {
			return ctx.Err()
		}
	}
	return errors.New("the disk of PostgreSQL is never full")
}

// fillMariaDB writes to a table until MariaDB cannot.
func fillMariaDB(ctx context.Context, server *servers.Server) error {
	for range 100 {
		_, err := server.SQL(ctx, "CREATE TABLE IF NOT EXISTS dlock.fill (x LONGBLOB); INSERT INTO dlock.fill VALUES (repeat('x', 1000000))")
		switch {
		case err != nil && (strings.Contains(err.Error(), "No space left") || strings.Contains(err.Error(), "is full")):
			return nil
		case err != nil:
			return err
		}
	}
	return errors.New("the disk of MariaDB is never full")
}

// startSQLite creates a database on a small disk.
func startSQLite() (*stage.Server, error) {
	d, err := newDisk(4)
	if err != nil {
		return nil, err
	}
	url := "sqlite://" + filepath.Join(d.folder, "locks.db")
	return &stage.Server{URL: func([]string) string { return url }, Stop: d.keeper.Close, Any: d}, nil
}
