// Sine and cosine in single precision, by multiplications and additions alone, so that scalars, vectors and the GPU
// get the same bits. A template: uses q_real, Q_FMA and Q_C of a form.
#ifdef Q_LEGS

// x = n pi + r with |r| <= pi / 2, pi in two parts; errors of 1e-7 up to |x| = 1e4.
Q_FN void Q(sincos)(q_real x, q_real *s, q_real *c) {
  const q_real magic = Q_C(12582912.0);  // 1.5 * 2^23: adding it rounds to an integer
  q_real n = Q_FMA(x, Q_C(0.318309886183790671538), magic) - magic;
  q_real half = Q_FMA(n, Q_C(0.5), magic) - magic;
  q_real odd = Q_FMA(half, Q_C(-2.0), n);  // -1, 0 or 1
  q_real sign = Q_FMA(odd * odd, Q_C(-2.0), Q_C(1.0));
  q_real r = Q_FMA(n, Q_C(-3.1415927410125732), x);
  r = Q_FMA(n, Q_C(8.742277657347586e-08), r);
  q_real r2 = r * r;
  q_real p = Q_C(-2.4079237058e-08);
  p = Q_FMA(p, r2, Q_C(2.7536422359e-06));
  p = Q_FMA(p, r2, Q_C(-1.9841086016e-04));
  p = Q_FMA(p, r2, Q_C(8.3333327665e-03));
  p = Q_FMA(p, r2, Q_C(-1.6666666664e-01));
  p = p * r2;
  *s = sign * Q_FMA(p, r, r);
  q_real k = Q_C(2.0180193097e-09);
  k = Q_FMA(k, r2, Q_C(-2.7542345820e-07));
  k = Q_FMA(k, r2, Q_C(2.4801455538e-05));
  k = Q_FMA(k, r2, Q_C(-1.3888888483e-03));
  k = Q_FMA(k, r2, Q_C(4.1666666665e-02));
  k = Q_FMA(k, r2, Q_C(-0.5));
  *c = sign * Q_FMA(k, r2, Q_C(1.0));
}

#endif  // Q_LEGS
