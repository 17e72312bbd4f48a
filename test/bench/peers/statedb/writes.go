package main

import (
	"math/rand"
	"runtime"
	"time"

	"github.com/cilium/statedb/part"
)

func writeOne() {
	db, table, stop := plainTable()
	defer stop()
	nsPerUnit("write-1", "ns/row", 1, func(n int) {
		for range n {
			txn := db.WriteTxn(table)
			_, _, err := table.Insert(txn, &plain{ID: 123})
			must(err)
			txn.Commit()
		}
	})
}

func writeMany(name string, rows int) {
	db, table, stop := plainTable()
	defer stop()
	nsPerUnit(name, "ns/row", rows, func(n int) {
		for range n {
			txn := db.WriteTxn(table)
			for id := range rows {
				_, _, err := table.Insert(txn, &plain{ID: uint64(id)})
				must(err)
			}
			txn.Commit()
		}
	})
}

func writeTagged() {
	db, table, stop := plainTable(plainByTag)
	defer stop()
	tags := part.NewSet("test")
	nsPerUnit("write-100-tags", "ns/row", 100, func(n int) {
		for range n {
			txn := db.WriteTxn(table)
			for id := range 100 {
				_, _, err := table.Insert(txn, &plain{ID: uint64(id), Tags: tags})
				must(err)
			}
			txn.Commit()
		}
	})
}

func writePrefixes() {
	db, table := prefixedTable()
	all := addresses(100)
	nsPerUnit("write-100-lpm", "ns/row", 100, func(n int) {
		for range n {
			txn := db.WriteTxn(table)
			for id, address := range all {
				_, _, err := table.Insert(txn, prefixedRow(id, address))
				must(err)
			}
			txn.Commit()
		}
	})
}

const (
	loadedRows = 1_000_000
	loadBatch  = 1000
)

func load(name string, ids []uint64, memory bool) {
	var times, sizes []float64
	for run := range 3 {
		before := liveBytes()
		db, table, stop := plainTable()
		began := time.Now()
		for first := 0; first < len(ids); first += loadBatch {
			txn := db.WriteTxn(table)
			for _, id := range ids[first : first+loadBatch] {
				_, _, err := table.Insert(txn, &plain{ID: id})
				must(err)
			}
			txn.Commit()
		}
		took := float64(time.Since(began).Nanoseconds())
		check("load", iterateOnce(db, table), len(ids))
		bytes := liveBytes() - before
		runtime.KeepAlive(db)
		stop()
		if run > 0 { // The first warms up.
			times = append(times, took/float64(len(ids)))
			sizes = append(sizes, bytes/float64(len(ids)))
		}
	}
	report(name, median(times), "ns/row")
	if memory {
		report(name+"-live", median(sizes), "B/row")
	}
}

func loadAscending() {
	ids := make([]uint64, loadedRows)
	for i := range ids {
		ids[i] = uint64(i)
	}
	load("load", ids, true)
}

func loadShuffled() {
	ids := make([]uint64, loadedRows)
	for i, id := range rand.Perm(loadedRows) {
		ids[i] = uint64(id)
	}
	load("load-shuffled", ids, false)
}
