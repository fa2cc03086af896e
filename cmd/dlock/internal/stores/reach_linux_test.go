package stores

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"
)

// TestNoAnswerCountsFromTheLastAnswer: a server that answers slowly may take longer than
// the limit in all, and one that stops answering may not. Only Linux knows when a connection
// last received data. A machine that is too slow for a limit is given a longer one.
func TestNoAnswerCountsFromTheLastAnswer(t *testing.T) {
	var wrong string
	for limit := 400 * time.Millisecond; limit < 10*time.Second; limit *= 2 {
		if wrong = measureNoAnswer(t, limit); wrong == "" {
			return
		}
		t.Log(wrong)
	}
	t.Error(wrong)
}

// measureNoAnswer returns what was wrong with the end of a context.
func measureNoAnswer(t *testing.T, limit time.Duration) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	const answers = 8
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		slowly := time.NewTicker(limit / 4)
		defer slowly.Stop()
		for range answers {
			<-slowly.C
			_, _ = conn.Write([]byte{1})
		}
		_, _ = conn.Read(make([]byte, 1)) // no answer until the client leaves
		_ = conn.Close()
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := untilNoAnswer(context.Background(), limit)
	defer cancel()
	began := time.Now()
	<-ctx.Done()
	took := time.Since(began)
	if got, want := context.Cause(ctx).Error(), "store unreachable: no answer within "+limit.String(); got != want {
		t.Errorf("the cause is %q, want %q", got, want)
	}
	if least := limit/4*answers + limit/2; took < least {
		return fmt.Sprintf("it ended after %v, while the server answered; want at least %v", took, least)
	}
	if most := limit/4*answers + 4*limit; took > most {
		return fmt.Sprintf("it ended after %v; want at most %v", took, most)
	}
	return ""
}
