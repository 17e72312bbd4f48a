package main

import (
	"context"
	"iter"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/cilium/hive"
	"github.com/cilium/hive/cell"
	"github.com/cilium/hive/job"
	"github.com/cilium/statedb"
	"github.com/cilium/statedb/index"
	"github.com/cilium/statedb/reconciler"
	"golang.org/x/time/rate"
)

type work struct {
	id     uint64
	status reconciler.Status
}

func (*work) TableHeader() []string  { return []string{"ID"} }
func (row *work) TableRow() []string { return []string{strconv.FormatUint(row.id, 10)} }

var workByID = statedb.Index[*work, uint64]{
	Name:       "id",
	FromObject: func(row *work) index.KeySet { return index.NewKeySet(index.Uint64(row.id)) },
	FromKey:    index.Uint64,
	Unique:     true,
}

// counting is a target that takes everything at once.
type counting struct{ updates atomic.Int64 }

func (c *counting) Update(context.Context, statedb.ReadTxn, statedb.Revision, *work) error {
	c.updates.Add(1)
	return nil
}

func (c *counting) Delete(context.Context, statedb.ReadTxn, statedb.Revision, *work) error {
	return nil
}

func (c *counting) Prune(context.Context, statedb.ReadTxn, iter.Seq2[*work, statedb.Revision]) error {
	return nil
}

// reconcile returns rows a second, and bytes a row at the end when asked.
func reconcile(rows int, memory bool) (perSecond, bytes float64) {
	var before float64
	if memory {
		before = liveBytes()
	}
	var db *statedb.DB
	var table statedb.RWTable[*work]
	target := &counting{}
	app := hive.New(
		cell.SimpleHealthCell, statedb.Cell, job.Cell,
		cell.Module("bench", "benchmark",
			cell.Provide(job.Registry.NewGroup),
			cell.Invoke(func(params reconciler.Params) (err error) {
				db = params.DB
				if table, err = statedb.NewTable(db, "work", workByID); err != nil {
					return err
				}
				_, err = reconciler.Register(params, table,
					func(row *work) *work { copied := *row; return &copied },
					func(row *work, status reconciler.Status) *work { row.status = status; return row },
					func(row *work) reconciler.Status { return row.status },
					target, nil,
					reconciler.WithRoundLimits(1000, rate.NewLimiter(1000, 10)),
				)
				return err
			}),
		),
	)
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	must(app.Start(log, context.Background()))

	began := time.Now()
	for id := 0; id < rows; {
		txn := db.WriteTxn(table)
		for range 1000 {
			_, _, err := table.Insert(txn, &work{id: uint64(id), status: reconciler.StatusPending()})
			must(err)
			id++
		}
		txn.Commit()
	}
	for {
		row, _, watch, found := table.GetWatch(db.ReadTxn(), workByID.Query(uint64(rows-1)))
		if found && row.status.Kind == reconciler.StatusKindDone {
			break
		}
		<-watch
	}
	took := time.Since(began)

	check("updates", int(target.updates.Load()), rows)
	for row := range table.All(db.ReadTxn()) {
		if row.status.Kind != reconciler.StatusKindDone {
			panic("a row is not done")
		}
	}
	if memory {
		bytes = (liveBytes() - before) / float64(rows)
	}
	runtime.KeepAlive(app)
	must(app.Stop(log, context.Background()))
	return float64(rows) / took.Seconds(), bytes
}

func reconcileSome() {
	reconcile(100_000, false)
	var rates []float64
	for range runs {
		runtime.GC()
		figure, _ := reconcile(100_000, false)
		rates = append(rates, figure)
	}
	report("reconcile-100k", median(rates), "rows/s")
}

func reconcileMany() {
	reconcile(100_000, false)
	figure, bytes := reconcile(1_000_000, true)
	report("reconcile-1m", figure, "rows/s")
	report("reconcile-1m-live", bytes, "B/row")
}
