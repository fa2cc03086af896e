package redislock

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
)

// talk makes a line without a server, and what adds channels to it.
func talk(t *testing.T, sharded bool) (l *line, ask func(request)) {
	t.Helper()
	s := newSubscriber(func(context.Context) *redis.PubSub { return nil }, sharded)
	l = newLine(s)
	t.Cleanup(func() { l.end(nil) })
	return l, func(r request) { l.unanswered = append(l.unanswered, r) }
}

func newChannelWith(s *subscriber, name string, w *watcher) *channel {
	ch := &channel{watchers: map[*watcher]struct{}{w: {}}, confirmed: make(chan struct{}), failed: make(chan struct{})}
	s.channels[name] = ch
	return ch
}

// TestClientReconnects: a confirmation that nobody asked for is a sign that the
// client has made another connection, so messages may have been missed.
func TestClientReconnects(t *testing.T) {
	t.Parallel()
	l, ask := talk(t, false)
	wakes := 0
	ch := newChannelWith(l.sub, "c", &watcher{wake: func() { wakes++ }})
	ask(request{subscribe, "c", ch})
	confirmation := &redis.Subscription{Kind: "subscribe", Channel: "c"}
	if err := l.take(confirmation); err != nil || !isClosed(ch.confirmed) {
		t.Fatalf("confirmed: %v, error: %v; want the confirmation that was asked for", isClosed(ch.confirmed), err)
	}
	if err := l.take(confirmation); !errors.Is(err, errReconnected) {
		t.Errorf("a second confirmation: %v; want that the line ends", err)
	}
	if !l.sub.disconnected(errReconnected) {
		t.Fatal("no other connection is wanted")
	}
	ask(request{subscribe, "c", ch}) // by the next line
	if err := l.take(confirmation); err != nil || wakes != 1 {
		t.Errorf("woken %d times after a reconnection (%v); want once", wakes, err)
	}
}

// TestServerEndsSubscription: only who waits for that channel has lost it.
func TestServerEndsSubscription(t *testing.T) {
	t.Parallel()
	l, ask := talk(t, true)
	lost := ""
	for _, name := range []string{"a", "b"} {
		ask(request{subscribe, name, newChannelWith(l.sub, name, &watcher{lost: func() { lost += name }})})
		if err := l.take(&redis.Subscription{Kind: "ssubscribe", Channel: name}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.take(&redis.Subscription{Kind: "sunsubscribe", Channel: "a"}); err != nil || lost != "a" {
		t.Errorf("lost are %q (%v); want a alone", lost, err)
	}
}

// TestUnsubscribedAndSubscribed: the answers belong to the requests in order.
func TestUnsubscribedAndSubscribed(t *testing.T) {
	t.Parallel()
	l, ask := talk(t, true)
	ask(request{verb: unsubscribe, name: "c"})
	ch := newChannelWith(l.sub, "c", &watcher{lost: func() { t.Error("the new subscription is taken for lost") }})
	ask(request{subscribe, "c", ch})
	if err := l.take(&redis.Subscription{Kind: "sunsubscribe", Channel: "c"}); err != nil || isClosed(ch.confirmed) {
		t.Fatalf("confirmed: %v, error: %v; want neither before the answer", isClosed(ch.confirmed), err)
	}
	if err := l.take(&redis.Subscription{Kind: "ssubscribe", Channel: "c"}); err != nil || !isClosed(ch.confirmed) {
		t.Errorf("confirmed: %v, error: %v; want the confirmation", isClosed(ch.confirmed), err)
	}
}
