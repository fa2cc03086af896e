package stores

import (
	"context"
	"net"
	"testing"
	"time"
)

// TestSilenceIsMeasuredFromTheLastAnswer: a server that answers slowly may take longer than
// the limit in all, and one that stops answering may not. Only Linux knows when a connection
// last received data.
func TestSilenceIsMeasuredFromTheLastAnswer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	const limit, answers = 400 * time.Millisecond, 8
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
		_, _ = conn.Read(make([]byte, 1)) // silent until the client leaves
		_ = conn.Close()
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := whileAnswering(context.Background(), limit)
	defer cancel()
	began := time.Now()
	<-ctx.Done()
	took := time.Since(began)
	if least := limit/4*answers + limit/2; took < least {
		t.Errorf("it ended after %v, while the server answered; want at least %v", took, least)
	}
	if most := limit/4*answers + 4*limit; took > most {
		t.Errorf("it ended after %v; want at most %v", took, most)
	}
	if got := context.Cause(ctx).Error(); got != "store unreachable: no answer within 400ms" {
		t.Errorf("the cause is %q", got)
	}
}
