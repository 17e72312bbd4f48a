package main

import (
	"runtime"
	"slices"
	"time"
)

const (
	runs    = 5
	warmUp  = 250 * time.Millisecond
	runTime = 60 * time.Millisecond
)

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// nsPerUnit reports the median nanoseconds of one of the `units` that a round has.
func nsPerUnit(name, unit string, units int, rounds func(n int)) {
	n := 1
	for began := time.Now(); ; {
		round := time.Now()
		rounds(n)
		took := time.Since(round)
		if took >= runTime/2 && time.Since(began) >= warmUp {
			n = max(1, int(float64(n)*float64(runTime)/float64(took)))
			break
		}
		if took < runTime/2 {
			n *= 2
		}
	}
	figures := make([]float64, 0, runs)
	for range runs {
		runtime.GC()
		began := time.Now()
		rounds(n)
		figures = append(figures, float64(time.Since(began).Nanoseconds())/float64(n)/float64(units))
	}
	report(name, median(figures), unit)
}

// liveBytes is what the heap holds after a collection.
func liveBytes() float64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}
