package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// load is clients that send requests at the same time, each one after the other.
type load struct {
	clients  int
	requests int // of each client
	dial     func(ctx context.Context) (net.Conn, error)
	done     func(sold bool) // called after each request, concurrently
}

// tally counts the answers that the clients got.
type tally struct {
	sold, refused int
	waits         []time.Duration // for the answers, sorted
	elapsed       time.Duration
}

// run blocks until all requests are answered, or the first one has failed.
func (l *load) run(ctx context.Context) (*tally, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	transport := &http.Transport{
		MaxIdleConnsPerHost: l.clients,
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return l.dial(ctx) },
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var mu sync.Mutex
	var all sync.WaitGroup
	t := &tally{}
	start := time.Now()
	for range l.clients {
		all.Go(func() {
			for range l.requests {
				status, wait, err := request(ctx, client)
				if err != nil {
					cancel(err)
					return
				}
				mu.Lock()
				t.waits = append(t.waits, wait)
				switch status {
				case statusSold:
					t.sold++
				case statusRefused:
					t.refused++
				}
				mu.Unlock()
				l.done(status == statusSold)
			}
		})
	}
	all.Wait()
	t.elapsed = time.Since(start)
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	slices.Sort(t.waits)
	return t, nil
}

// request buys one. It fails if the shop does not know the outcome.
func request(ctx context.Context, client *http.Client) (status int, wait time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://shop/stock/reduce?id=%d", productID), nil)
	if err != nil {
		return 0, 0, err
	}
	begun := time.Now()
	answer, err := client.Do(r)
	if err != nil {
		return 0, 0, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	wait = time.Since(begun)
	switch {
	case err != nil:
		return 0, 0, err
	case answer.StatusCode == statusSold, answer.StatusCode == statusSoldOut, answer.StatusCode == statusRefused:
		return answer.StatusCode, wait, nil
	}
	return 0, 0, errors.New(strings.TrimSpace(string(text)))
}

// percentile returns the wait that p of 100 requests did not exceed.
func (t *tally) percentile(p int) time.Duration {
	return t.waits[min(len(t.waits)*p/100, len(t.waits)-1)]
}
