package main

import (
	"time"

	"github.com/dlock-go/dlock/cmd/dlock/internal/child"
	"github.com/dlock-go/dlock/cmd/dlock/internal/oversell"
)

// shopName is the argv[0] of a shop.
const shopName = "dlock-demo-shop"

// shopOrder is what a shop is told. It contains URLs with passwords, and is told
// through a pipe.
type shopOrder struct {
	Guard     oversell.Guard
	Database  string // the URL of --db
	Folder    string // where the SQLite file is if there is no URL
	Table     string
	Store     demoStore
	Processes int
	Think     time.Duration
}

// connections is what all shops together have to the database. Servers allow about
// a hundred.
const connections = 40

// shopProcess is the whole program of a shop.
func shopProcess(parent *child.Parent) error {
	var order shopOrder
	if err := parent.Hear(&order); err != nil {
		return err
	}
	ctx := parent.Context
	db, err := openDemoDatabase(ctx, order.Database, order.Folder, max(2, connections/order.Processes))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	stock, err := oversell.OpenStock(db.DB, db.dialect, order.Table)
	if err != nil {
		return err
	}
	opts := oversell.ShopOptions{Guard: order.Guard, Processes: order.Processes, Think: order.Think, Stock: stock}
	if order.Guard.Shared() {
		client, closeAll, err := order.Store.client(ctx)
		if err != nil {
			return err
		}
		defer closeAll()
		opts.Client = client
	}
	shop, err := oversell.NewShop(opts)
	if err != nil {
		return err
	}
	if err := shop.Open(ctx, func(address string) error { return parent.Tell(address) }); err != nil {
		return err
	}
	return parent.Tell(shop.Visits())
}
