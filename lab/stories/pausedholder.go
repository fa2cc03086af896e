package stories

import (
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/fence"
	"github.com/dlock-go/dlock/lab/stage"
)

var pausedHolder = Story{
	Number: 31, Name: "pause", TTL: 2 * time.Second,
	Title: "A holder is paused for longer than its lock lasts, and sells what is gone",
	Tells: "One is in stock. Process 1 acquires the lock, reads the stock, checks that it still has the lock, and is paused just before it writes (SIGSTOP), until process 2 has got the expired lock and sold the one. Then process 1 goes on where it was, and writes. " +
		"With the lock alone both have sold the last one: no lock that expires can prevent that. With the fence the row remembers the largest token that wrote it, and refuses the write of process 1, whose token is smaller.",
	Guards: []Case{{"dlock", []stage.Verdict{stage.Accepted}}, {"fenced", []stage.Verdict{stage.Refused}}},
	Play: func(s *stage.Stage) {
		const expirySlack = 30 * time.Second // after the TTL: stores that watch sessions need some seconds more
		s.Patience += expirySlack
		s.FixedTTL = true // a process that is paused during a renewal keeps a database of one file from all others
		_, stock := newStock(s, 1)
		sold, refused := 0, 0
		s.Row = func(token uint64) (bool, error) {
			err := row{stock, token}.take(s.Context())
			switch {
			case errors.Is(err, fence.ErrStale):
				refused++
				return false, nil
			case err == nil:
				sold++
			}
			return err == nil, err
		}
		read := func(p *stage.Process) {
			p.Read()
			_, err := row{stock, p.Token()}.read(s.Context())
			s.Must(err)
		}
		first, second := s.Process("1"), s.Process("2")
		for {
			if !first.Lock() {
				return
			}
			read(first)
			s.Wait(s.TTL / 5)
			if first.Check() {
				break
			}
			first.Unlock() // a slow machine has lost it
		}
		first.Pause()
		if !second.Lock() { // where a lock is bound to a connection, it lives as long as the paused process
			return
		}
		work := s.TTL / 5 // so that each step can be seen in the picture
		read(second)
		s.Wait(work)
		second.WriteChecked()
		second.Unlock()
		s.Wait(work)
		paused := first.Resume()
		s.Wait(work)
		first.WriteChecked()
		s.Wait(work)
		first.Unlock() // fails: the lock is lost
		left, err := stock.read(s.Context())
		s.Must(err)
		s.Figure("sold", sold)
		s.Figure("final_stock", left)
		s.Figure("refused", refused)
		s.Figure("paused_ms", paused.Milliseconds())
		s.Detail("stock", 1)
		s.Detail("ttl_ms", s.TTL.Milliseconds())
		if s.Subject() == "fenced" && (sold != 1 || left != 0) {
			s.Must(fmt.Errorf("%d were sold, and %d are left: with the fence exactly 1 should have been sold", sold, left))
		}
	},
}
