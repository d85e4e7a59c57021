// Package gates measures the cost of a Quota, and compares the Shedder with the limiters of
// other libraries: false rejections, and a load of three times the capacity.
package gates
