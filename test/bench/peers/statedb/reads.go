package main

import (
	"fmt"
	"math/rand"
	"runtime"
	"slices"
	"time"

	"github.com/cilium/statedb"
)

func fill(db *statedb.DB, table statedb.RWTable[*plain], rows int) {
	txn := db.WriteTxn(table)
	for id := range rows {
		_, _, err := table.Insert(txn, &plain{ID: uint64(id)})
		must(err)
	}
	txn.Commit()
}

func check(what string, got, want int) {
	if got != want {
		panic(fmt.Sprintf("%s: %d rows, want %d", what, got, want))
	}
}

func openRead() {
	db, _, stop := plainTable(plainByTag)
	defer stop()
	// Four a turn: a turn of an empty loop takes as long as a read transaction.
	nsPerUnit("read", "ns", 4, func(n int) {
		for range n {
			a, b, c, d := db.ReadTxn(), db.ReadTxn(), db.ReadTxn(), db.ReadTxn()
			if a == nil || b == nil || c == nil || d == nil {
				panic("no read transaction")
			}
		}
	})
}

func lookUp() {
	const rows = 1000
	db, table, stop := plainTable()
	defer stop()
	fill(db, table, rows)
	queries := make([]statedb.Query[*plain], 0, rows)
	for _, id := range rand.Perm(rows) {
		queries = append(queries, plainByID.Query(uint64(id)))
	}
	nsPerUnit("lookup", "ns/row", rows, func(n int) {
		for range n {
			txn := db.ReadTxn()
			for _, query := range queries {
				if _, _, found := table.Get(txn, query); !found {
					panic("a row is missing")
				}
			}
		}
	})
}

// iterate measures one way for two cases: All calls the body of the loop for each row.
func iterate(name string) {
	const rows = 100_000
	db, table, stop := plainTable()
	defer stop()
	fill(db, table, rows)
	nsPerUnit(name, "ns/row", rows, func(n int) {
		for range n {
			check(name, iterateOnce(db, table), rows)
		}
	})
}

// iterateOnce counts all rows of a table whose ids are 0, 1, and so on.
func iterateOnce(db *statedb.DB, table statedb.RWTable[*plain]) int {
	next := uint64(0)
	for row := range table.All(db.ReadTxn()) {
		if row.ID != next {
			panic("rows out of order")
		}
		next++
	}
	return int(next)
}

func followChanges() {
	const rows = 1000
	db, table, stop := plainTable()
	defer stop()
	txn := db.WriteTxn(table)
	stream, err := table.Changes(txn)
	must(err)
	txn.Commit()
	nsPerUnit("changes", "ns/row", rows, func(n int) {
		for range n {
			fill(db, table, rows)
			changes, watch := stream.Next(db.ReadTxn())
			seen := 0
			for change := range changes {
				if change.Deleted {
					panic("a delete before there was one")
				}
				seen++
			}
			check("upserts", seen, rows)

			txn := db.WriteTxn(table)
			must(table.DeleteAll(txn))
			txn.Commit()
			<-watch
			changes, _ = stream.Next(db.ReadTxn())
			seen = 0
			for change := range changes {
				if !change.Deleted {
					panic("an upsert among deletes")
				}
				seen++
			}
			check("deletes", seen, rows)
		}
	})
}

func getPrefixes() {
	const rows = 10_000
	db, table := prefixedTable()
	txn := db.WriteTxn(table)
	queries := make([]statedb.Query[prefixed], 0, rows)
	for id, address := range addresses(rows) {
		_, _, err := table.Insert(txn, prefixedRow(id, address))
		must(err)
		queries = append(queries, prefixedByPrefix.Query(address))
	}
	snapshot := txn.Commit()
	nsPerUnit("lpm-get", "ns/row", rows, func(n int) {
		for range n {
			for _, query := range queries {
				if _, _, found := table.Get(snapshot, query); !found {
					panic("a prefix is missing")
				}
			}
		}
	})
}

func propagate() {
	const rounds, rows = 20_000, 10
	db := statedb.New()
	from, err := statedb.NewTable(db, "from", plainByID)
	must(err)
	to, err := statedb.NewTable(db, "to", plainByID)
	must(err)
	must(db.Start())
	defer func() { must(db.Stop()) }()

	revision := statedb.Revision(0)
	closed := make(chan struct{})
	close(closed)
	var pending <-chan struct{} = closed
	samples := func() []float64 {
		took := make([]float64, 0, rounds)
		for range rounds {
			began := time.Now()
			fill(db, from, rows)
			<-pending
			snapshot := db.ReadTxn()
			_, arrived := to.AllWatch(snapshot)
			changed, watch := from.LowerBoundWatch(snapshot, statedb.ByRevision[*plain](revision))
			pending = watch
			txn := db.WriteTxn(to)
			for row := range changed {
				copied := *row
				_, _, err := to.Insert(txn, &copied)
				must(err)
			}
			txn.Commit()
			revision = from.Revision(snapshot)
			<-arrived
			took = append(took, float64(time.Since(began).Nanoseconds())/1000)
		}
		slices.Sort(took)
		return took
	}
	samples()
	var p50, p99 []float64
	for range runs {
		runtime.GC()
		took := samples()
		p50 = append(p50, took[rounds/2])
		p99 = append(p99, took[rounds*99/100])
	}
	report("propagation-p50", median(p50), "us")
	report("propagation-p99", median(p99), "us")
}
