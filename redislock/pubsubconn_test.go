package redislock

import (
	"context"
	"errors"
	"testing"

	"github.com/dlock-go/dlock/internal/subscribers"
	"github.com/redis/go-redis/v9"
)

// newTestConn returns a connection without a server, and a function that notes a request as sent.
func newTestConn(t *testing.T, sharded bool) (c *pubsubConn, send func(request)) {
	t.Helper()
	s := newSubscriptions(newTasks(), func(context.Context, ...string) *redis.PubSub { return nil }, sharded)
	c = newPubsubConn(s)
	t.Cleanup(func() { c.end(nil) })
	return c, func(r request) { c.unanswered = append(c.unanswered, r) }
}

func newTestSubscription(s *subscriptions, channel string, w *listener) *subscription {
	sub := &subscription{listeners: []*listener{w}, answered: make(chan struct{})}
	s.byChannel[channel] = sub
	return sub
}

// TestReconnectionOfTheClientIsNoticed: a confirmation that was not requested shows that the
// client has reconnected by itself, so that messages may have been missed.
func TestReconnectionOfTheClientIsNoticed(t *testing.T) {
	t.Parallel()
	c, send := newTestConn(t, false)
	wakes := 0
	sub := newTestSubscription(c.subs, "c", newListener(c.subs, "c", func() { wakes++ }, false))
	send(request{"subscribe", "c", sub})
	confirmation := &redis.Subscription{Kind: "subscribe", Channel: "c"}
	if err := c.handle(confirmation); err != nil || !sub.confirmed {
		t.Fatalf("confirmed: %v, error: %v; want the confirmation that was requested", sub.confirmed, err)
	}
	if err := c.handle(confirmation); !errors.Is(err, errReconnected) {
		t.Errorf("a second confirmation: %v; want that the connection ends", err)
	}
	if !c.subs.disconnected(errReconnected) {
		t.Fatal("no other connection is wanted")
	}
	send(request{"subscribe", "c", sub}) // on the next connection
	if err := c.handle(confirmation); err != nil || wakes != 1 {
		t.Errorf("woken %d times after a reconnection (%v); want once", wakes, err)
	}
}

// TestServerEndsOneSubscription: the listeners of other channels keep theirs.
func TestServerEndsOneSubscription(t *testing.T) {
	t.Parallel()
	c, send := newTestConn(t, true)
	lost := ""
	for _, channel := range []string{"a", "b"} {
		w := &listener{wake: subscribers.New(func() {}), lost: func() { lost += channel }}
		send(request{"ssubscribe", channel, newTestSubscription(c.subs, channel, w)})
		if err := c.handle(&redis.Subscription{Kind: "ssubscribe", Channel: channel}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.handle(&redis.Subscription{Kind: "sunsubscribe", Channel: "a"}); err != nil || lost != "a" {
		t.Errorf("lost are %q (%v); want a alone", lost, err)
	}
}

// TestAnswersBelongToRequestsInOrder: the answer to an old unsubscription does not end the new
// subscription.
func TestAnswersBelongToRequestsInOrder(t *testing.T) {
	t.Parallel()
	c, send := newTestConn(t, true)
	send(request{command: "sunsubscribe", channel: "c"})
	w := newListener(c.subs, "c", func() { t.Error("the new subscription counts as lost") }, false)
	sub := newTestSubscription(c.subs, "c", w)
	send(request{"ssubscribe", "c", sub})
	if err := c.handle(&redis.Subscription{Kind: "sunsubscribe", Channel: "c"}); err != nil || sub.confirmed {
		t.Fatalf("confirmed: %v, error: %v; want neither before the answer", sub.confirmed, err)
	}
	if err := c.handle(&redis.Subscription{Kind: "ssubscribe", Channel: "c"}); err != nil || !sub.confirmed {
		t.Errorf("confirmed: %v, error: %v; want the confirmation", sub.confirmed, err)
	}
}
